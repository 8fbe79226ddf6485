"""Check and time the fused U-Net, with each change on and off. From the repository root, on the GPU machine:

    PYTHONPATH=src:benchmarks python /path/to/network-sweep.py [--checks-only] [--seconds 95] [--out sweep.json]

The kernels as they were before (commit e6ac78c) are in here, as the package ``fast_before``.
"""
import argparse, base64, contextlib, copy, json, os, sys, tempfile, time, traceback, zlib

BLOB = r'''
c-rkfi*nmWlD~p=DjUF}7)tVa9okHt?cHp=n>a4psa%!Bf*@ijAqD{k04;JK_wCoO8O-28k&>M3)@@RWKwus{J^h@Xp85NOFif(f3d7-Y^I+^f
IHP~xUn#GQ7Rt+1b)6R<N-xR0xw=+`w~WeCm0tc4o)>D77n^~XXI|v}`OS}G?;@&ZS6-GE3-3CquDqlwy|?PS9|vBP#olTOjV{w9yR5(doG01v
EIZ47Qpx32RSvuiIxeYvp~_VXWy&hrc-L1^<yBW|<3)vf>Ybm@qq0)P`MEc{in2?na+P130^TfNELW9^2MGEyjb;ja;qgIl^CDk(*g|-r=6Rup
<#n|5lEpGFDvw*nVqqAiX&8DF@AT|}ynZk}%N`882Q=0Y$LiqjMU4U+0{}!A@S-_Xh9M(7d8WKY9<Nduh%R)IM1a;gJ<sy&W1g<61Tf3+LB#=}
AekZ7yj2$GsvI_k6Nd9uwJH?AD+7tLEUzMLro>Y6b`e!qQl;7~aW>?`^9&~Qn<R@;t8|qYGgBO&b?NsiEAs;8E3>~2v&^7zmCdm4DD_}y-xxRx
=yI+ym=U$E3iu@DlME(0O;wB~-#mZ&{@s|N0rVe@jvwjyd$(GYG{=i5R*23rhsSIKv{?YP0GTZEvKj+T0?B%SJx@gd_5x@rSr++Bl>j%QI`Yz}
xKv2G7B0`SSqen%y@o0L3CI*@&(E^q_cUR__$>3_A1=QE&<d5V{F?CnwRhlM1i^r59H;Y|Nt?U8XwwHx{l(VFCl<kee?m5}+9+2SfWsM%`!WJt
WJ<*)e1byCi{e<tz?FcIkH8?<da=qfobrW=GUiGsdxdXQTB@P<+Hl{;C|#+Ndj-(+An?=0YCcy5PeOH-mrBE417-kzUR;)fGyDg?je(M}(zRxJ
(;l>4s;UBTN~H5D`ha9^DkGv`I3RHfn4U}x?YYn$$_PUo;aI5D`v;YG3w(@<&hOc35z;_Z86s{!APyVlxMZy6o)(~fsnYpC#s}m=asX-QIEGsG
ixUt^JQAnTz&re!9xQB?tEDRZU}!oCtZ&fYkWo0`A4EqJM!)_*Kk!4NqFR<xYmqNhR;?DgCVinN{iUvo%!Kk8xz0a(V59mBWMcgWaLX?`ka_kX
u!d+LD%53y0ybo7@UfqPcd0;tRqzV{V%-olaUdcbg)|Oy>Up0be8AlaiUAb4Ws|eMD4F;dtFkiOf&v6OKsk-{e4RHs0{D}RAmK+CXke29Kye)v
u~5QV&o50ZKU(8vqU{kLMjY9c4+FHvdperd-_vN5uPP|PLKszI1`Hj7B!l74z4b7Q6PV(O_lOw1t6X>z*A3>Y0y|s}lQNvG;)t+iBs9!@RU}mo
vmVeFE|+Ija=FS^rO&282ylY7nJ{$Lya7arbm|01YCViW6Db6b;hLv;R6Tx#->@7&zgno&Z_-VnK;LD86;Sd?mTvqtb62~!dJbXY8ZDt!Q%Dh;
s*!ZCF7l;_C#wWdxl;fLFUx<4#@@T5(b2$r^L}*n#5;sK%A13+<912SPrACC^K>UAw@UNXE_Ud-Y;7Tgtda=GA7%>B!Lr_Ofqq~_K`<=JUy8~P
20dcM#U{P(;A|TiT`b;FWe7Sd^pC9e+3GXGapHxxCLTu1B~NlUpgj5fBEShj!U7?1nIX$$`Qa+VH}T;N2zhGvN|@u$9r>>5s=?L$GQ7p=)`a$8
XN|0etPjP8RqhKz1jCPsy7qyT4&lFtr$<xoq2~)PA9}|@$Fyhyuc`G@O%xItG&S+Q8P>M2-x%1SOVV3pyzM*CXxC?%^Nuex^&RguPP)Ds^#_wU
8jiY(phm1;2Q8xcW=LY3@!@C$GH}B}EeoFs63C;h+G^l==~#welr04yUCqxP{5@5fZy_T1=fDF9Cx6$l!f!n&d8vQ?Q(L&Ctw19A##|BW76H7-
^VG3&f4WkjJ`2})y#j&;76Qe}ei@kiAa2ODAscjDn|IpgEYTM!t7L}C*TCouRfcI%5%K|n8IaN8T2_OGVP(w?o3_RhvMIi!P@l~2C~63%RV=XG
2S;l8tk$Acm0uQ7Jp4vnBdyT>n@}?Y+v6&a+Xh7q#jFAWM1Gnjh<JqEf@vT=L_<)434IOLu??e)p;Ll2-DT~vAwt3rsz4h8ojiHeEI<&8i9yCh
c@-@ch%t+<^K1Sj8s7WzOH-vTg$~?6{5wzx^x$JvYr-$meD(pq(u1!Xu}WYy7CQV`{;~oOM!Hwmp;|1fjejg14GbIukEHR$vQ18ot#)P9LK)?$
FZB=oLo<397Qqz+)0T+r18hLpvEg7mym&h~9zA+u+JrYRC-l@QrMTe|6rO4ib>A_fdzPwGzcIE)!Jsv;-cbp9creW&TF?@ay4u2d)7B46om`6i
7<|wS3ut;X!G#3E7ySSI+vhL;`lmlm-WMyV^WxR>ckn|Kc+K3l>_>}Yz5re;KO{?sEr(_FQK7*LigWgX*mkX1QyV4L*xFj8(`XYs*v%LP(<3xY
_qD8uH;yk-t(Gu_T0S)YvUtG%Pwz(pY(oPOq{dwwRs=zL&$1&11c1&>V(cu$I$=Kd@$EYJBoc-PNspp??n}UwX}(mqkS{pcUV0kzK;33d#-cE;
+eyDj+JSpw={)Ym*S?5CTXnVET}pKfzCA?^C>!FWQ}o7b<C4=@!Zi7y{B_sVE(;aK1Tm5IL!mZ+8W9`pIot7i>x{R@(lgihILjjD5Hj5@x;pa2
{*HzWKhR(Ox)w^c0qY3N+TO9({bcyNnM!Tb=axcmi`Zf`3-UI7!fVhHF@t_8(iCK{aW^7@>DewVnv`;rH4-?M{l=QVS{Bz6vfiSplB}9Kj>&Tm
t?2}`yR0bFsAmx_oO{<%ik>b;s(7sr<3sZZ+!$nS6Db-Kr}Nr82BW?}KOJK&iWc6zG*PZMwq<siX|OhHn|L$iSGcfJ|9~g);I%ug)=M?3$eG5f
LVaMZN9%-wZ-s(kAfca*2HwL0170W>rKMmRxXTUL7eR*gr{3=--Vv_{Fo5-I-Em_P-~xn^WlS3I9!?rf3;1cNTmW=OM^jwX<IV{wUr!7IyBG6N
deu0%*L6+P!|<k+%7JA^7;>#`f-#b!MWFDjgF4?LF%n&2O>%iD1eH>_<ng1LDy`^MMRW&r>ChYnuqK}7YhX2sj|I)I^aNiYKMH{PA3t)&%_ff3
2EGWa0lG4$9whvA2KG{O0QvqfyaK)2g_q{}2aLaA=xv!_n`QKY_XOs}J2~!h^%qIzp8zQ@qP72I0HpHl8AT|EGnJ%1J*D~OaV-i1T=l{L>^v#T
suj1Uw@wg^ra&UuCRRNViIFTKiXDRiN^2L$a}+l;Y)+29Qt15~aq}+}dfg|e`uz{@-iI&0eg69OpT4t#t0y|L`U6Mt7$;-z_zzwcEg1tE9Zy*)
GMVNX&Kt1$8fhS2VHk25Z47p93gXf(f@QKMG~X1^bwadAuSpq}pz%`QnrvFjdI`Ue<Lzr%92Gk8&Q_yQ{0Hx3z+__2yhL#SrivWF%U2SvCG@zl
(-P!k5~VjRWm#|zlPok8_H5!gGvh8g*|k{Lhh_3N3YPc)_DRrRT)RCJ=WU#%M3~L@OR$=8Fxc?Xz&qN~@Fida2m?iXe<5ivT;vSH*#knQ#*Za=
xE8p8z9zkHd(E=YWF5<y+xKpakLM57M?|K}Qx2!FX2*%t7F?W@uRl*PTFCN%BpY#kWSAc8A&a(2Lnq`davdj9hV9AgLjAHz3RQ;K4u{eB1IN66
*Nk~tCA4YywKsA)q(8j@IW8(eFDfcwGz-o?{nw#BZPP+%+KQ#Of;BJoTuP*dJFSh#kay+)VaTUo*Dy^hL?dde*`RAd(trrn4LN|SYgOelv?Q+c
RT}F(Lmuu(YBMsobg8OPR|~0GKs`=7MnVDSTnbQZ3aKo*;2F}z$WXC~z*#po2)yH>alQProvFm99^0teZxxtS?hT7T6gjZnhAW{5u=T2|nu*A^
w8PL9Oo?`xpcn=}B<^9nB<r0W5EH@^{bG6m*HU|x9L{(su)qTW<Mi(O@4gJf0e(<J8LN-UOilFM(l5PcArZZ$Di%OwKG^Xfy+O{}>ldFP_L>?s
&P^=EBP|3{3Ct<l5C=L;?{ovQ1qp>}6*ueg(nx!qL5o^)5(PD23LYJccPK;IvcljpGz_u=Gtv)gyxP`vK*-UP(2F>?2dxJuj*|%>?zP^~y(TL%
$1R5bG`d~{Tua&kkozyWYNgTP&hlD@z1%vzCnnRvHrT$bdP`n3zV@WHgZEM-9c*ow)3m5P>YKT<c6(|%CW})OG*p2<w*9q2Esi#AEl`~5<PiZ^
K1NYqJNoFslF-(U%F$yZd}Js=V->h;2o9(3t@5H{agYe}RJXAgm)6FMENI@qiQ*-0W5M?m8bxDiaCgR>lO;W2fQBHkd~o3>qu_MxeFamddz=m{
kSd_<ksy2nUky;h__b`40r!C-Nwc@JlGyTjrS&eCx8bJt`lm=12FNE3FIDrcc&ndzi_LPQ&7DJ46vUsOdBtizAIl!1*H1<#-l6xN%(^cOzmLJS
2I%y5NiY#F;CX<CF9@fsBJn?qmI)Y!rS`U-Tb@qSHx`Q*o;v;CvG{tRY0?B^f2ez8A!DOA(E%f(MgmZk<)&#jmJL()=P-@3%N6vDqO3}JM*dsA
{hU;;V<5!cv?X^}Ew$5Ir9(oMS}zME>eic=jW=gtaCJ~J4-<MhT|#G5pl3kvNp!+aZOd=2F@3u94)8ln*;Gbyn!^tg4%4UJ$h%OR-1apcYm|nI
!X+Kbx=WbE{)qH1yaUqU#h({%v72-l@nYc!$12>ysA;uvMAcrls=btIYhJNt06y1v_W3tRB6<<Pmn%z;R(TZ(xa9r${)@NN<^W&05gc6btZ*BC
hTmA#h78A7K|@7`KzsBTBP<($*~gjy#R)B|4rn_Sz585VS(af|^7^d6{!C~n@P6<4+&HdNj_lvhWK{LLb)(E0$}kEnO@N69bw^DowN7h-iXYmG
0f-(Ur!Exf3e8QDw2zx-0I;nsAn1~TJJ4;SW-C8T7&$=F$o7-b&`?%8+D1S{vx*!)-MobGU_?S@^-$`*aDZQFHlS{$@UvPG)d09XGDRIscwnbv
F`=MEhNS_nm|J6UB3YQVr@n6I_XctUOsf$@JxFdWh={}{Y(TVnK9DC<eZbHoi13AV(om%eHz<VFCJ<y0kU@`3Bm_4E;_bBj-lFmS-GrqrAkWVc
g!6N40d|W=Jua59WA9Xk*AlO0Xj4~MVrb_ES$QX!$m*A?S)bpN?W37hG_Mf6kPwYf3QTl6pL<^o^fO3_uXI>REkoMH0Dmc>YzYxUhL#+?GWY#9
nG0fsR*F3{0KL!1mL*#85KbSm^?e|9`!vn1)rJVJBsMjlVHaS9B?~YZX$J)KO4B1-H<*vNX$ixI1UKT;FfHhd*4MT9+MzlKxVp-HD-P3-JV03?
i)Umc8)4r8qpNhb4BApZjR6OpQoEzC?aHNBrC8fLMIJLg_YuP6l3HCG_jEsjTnpSD0JXY-e&W3HX~ZZ%E{#iZiNQZ;HCz^ImXu&uPtG1BN-47#
TVbAArF|Y$j>1JR-op=`*<dGt8w!XU7PTUS*@8KTjzCJ)6VA@cB3k~|uF4<t)di)9MlhNsRm8A7#mX=w25)GZBzhX9AMq2qE*Bg0&4B`k-uI**
fUr(wt)s}VvEOvH$c)&X-m9yEK#EpIy$8}7V^iCGlr+B%^(%aq*9C@WP;~Kw-b4THudm)T74W<7pMUq=Cva*onaUc57vrp`7*y~@0<)tcXp~c`
V5SRF-xn|~ps<s;#2_oF2b!q+_FnYDO;b_tXy3^u4kCq?-hSD#^fcr4Sb9EA3Vfh>2rz?#pc9*cdol4C>)SJ)O-szQI9kLS&O%qu(s4(BjuF|g
C_8p*teeWY{<NtPxlK`%&^N6>NuSk<Ub?dbi51c{{GSwZ!&HX~hV<8c-_{m*FlFlzG=#0z6a=NY3+Gj1ljcUY`ym`Y)(82u83mR>;1iUG&_kD!
-GJe>K4JpWR>@|BCW+0~;)_~k)>awDlIxq6`Klo8&3xxf@S&b`o33P6*@$Eu0>nBPYFJ<#;MnAqHo&@z9XZ9UiL*4VzzA9lcf;U-*3>#PfrY|u
-P-F<UTp8<=sx<G_4aXeZ{vu!_i-=dSS^>R15?^&0~~-Ng6SEA(gl!8gqxV0w=uk(1zSXpPmSt28?3|aA98m=a3{wVH6#UML`~LC>wV}*uq9}V
9KO?!duz_Oe|rA%+xu3hxGljLr;;eo+zkfKSTyCFPQwsq_%cF7mS(GsR=;TG$le67g|2Wr0lQ<3i1j^aS*=H1H7W~%md0p^3Rh#8kAal5HAh=(
)H2bQN&=7(jFz1*;&4}&y`kHAWq!kWqSbtVL(;gddJJs^9Xf^ES=;TbZ)j)T)y}?4r9am$JJD@>iIldA@E{MopPL#`loy)JpqP$^BLEsvc2SD&
+N+*XS2jKZkgneZ(#}>!M#FH^K|7p>LrS&`$qZ|4hJ|aqNqalL_*o>uwvMph$Uwb+(+C|uo%!W{mI3e;jpOT%9<_JxDi)2{b<i?OyQ~+-vBj=z
%TlYZwhM2ms~c3*O?ESZc6-+C_J4QMPPWV2siu~Bo?-&lHl<`oMQ>6LL2Hki5TxvmMZXpQa92+?r^t?J5QeQ&R(J>0eM@}XCE8;Jbf*P%Y5SQ$
TysL%@_<%a?#4s!7)knA3ygqPPi%jM$^=&ASWqI2f<l6tuOZSFbOQ+6#<hvRXLabJS-f5;E4SC2b<{Kiv<9-hmAIpo8c%w4bhow)L%ExuIylz^
G+Rg<IHskRy4GVf@Gis~k~gz~7lUB6a#d>>on4}xT*}6zmGSgRxYgJjmpK|=IVZc*E_30>If!Dh%4lZ}pDGp6X8xqm?EW8q-Hl)O=hby%y?F<I
UAN<(d+@AX`)+(|w{%<H#m(`qEw=;Di3?_d5^wfo_pLzbo$<9f%UNrew$V(E>tsSB5G!BJa@rgOKCFBobLfAmydmMFpfa<rGW5vpG=*DiQ3|}I
o!~yzqD6dxxogd=qX~y{Ol#cn?V9T*CDSww`*tmFBP|yZ-aqsl{KJzDr8nrg*`b6CN+$`YUcj%H?w!SYO0~dhRx%DACL;Ts@wg-sor|X)oxS7b
AP_i}hSn|#+PyPy{?*SreDyz0PR`>;R#J{hvFbRc@LNV|-wA~`*_(v=^K+~nt>1uBJ&yh3;QV~(9;$cC<IT>`PkT0-dS80Sdc!F^POTmr$99ED
8R9`<KKM3tRv7OPJ)VL-Ikw-N(3|e8!f#Ogg-aga+TC>B&S5~DngoXRosN;RmcC>WhgS5h1Z7+a>c^$VBUU;;XFh^oSn2#6Q=_WuWTt5Gh_ZtG
IzFRgGf@g)s~DIU!N8Q3GzTW2@QuuhgL`w#!7N`a@=Uf!A^_IrT!O&-)|yS0sV1IP`glw^ptSdy<WQ=zOPF=^_vH~&zO4432A?X2n=V@)z-xZw
q`3HoLa<k^S--;S{7yqhCs@)LDJ2#mHOJ3!ZyeYi+sEsHMOV;KR}|1(=4n(ZUqXD8CLQwbqsj4bgy%2CYI62K&jlWZNV5>ioY0XY?Y*nAX*#NW
3BGZ^fNtC&dldBL-28>+Rp`};KJxD1J0{o|26V{OO08?Bx|wqW-Sn_6`AWLTx+gEHS!&-brdHCKOWvgXX#ej(6kvb;E6P-w8BmvYo-3HHoaf5U
K%9KU9B2xR;<nCYE?I}EDrprr^PY4vUIu!?$A~tv2>!)`uW0k}<AH}cvXp7W>iTmk0F*nD1K&t@*KghId+x!6B7v2j@W%F$g%{qij@DW&rJST-
EyLvp3Go_Rj`)&(X$N+Fq6htCmL5%e-L;-v87oza>HgmGq_zlV;iR5XZp+)Swp46SjS@SwnTt_NQu{PgHZnV7BRY1dg|oe1h9mnj3oIy@j1Ekj
PXCQO8PqVie*+#ht!neRvw9DNfnc+-w+vGzZp!)4n^RDeHBy+^f`YbvcSu2<CDBZhxZ_3*w=usF_64)XccQ?)8}s!{oSZ-7qU}VmNz0=Xjnfxz
Cp@^@=UjZERHm-8qo()56t^HNo%Do6`l+&(YVNVJg12#F&_U#wuc)gBZUnwF_HGkBt$FoPzDR#ONk+41i{|eVb-h=DZ#33usI`Z}cN=n>ZZy`<
N)%O^{FlvB$VLWTyR(wnnmitOW9n-vD6KP$L`|_fac^qs2G8rxil{#?aNUufTXV#^%geLfye}QMOH-cKBwF<QR#l2-S+xgfT-m94V8Or}GGUG$
w>btKzCLEz`8=%-K531saUhaKTK(rT_8b}*+>g|5ocVW;WC9a?*96lRA@K@6ADOh5bRKL!UhUT+vaMoy?~~g;0kN6W*Lc;=KEdp_+UeUk`#vzs
f_ySheE?5^?iO1EDnp_?b<ZH1Vvb^=>H|GQW)9>v&JEp1@tWasE{L(R<te3JQTiUOn#msGBpZTE=jCh+@ZhByxQG^2`68LY*h{_<VY#9sLKb+T
M^!r4&D?!^v79YyoeX-@8L|6Cy1vJQk8$oeNr!f@U`GKauUs5Al6LqItkcFBiPNWEbb%_Nj*!v5>oS+~R0N5$D4R7Go%o2X?!CPu4q$Zb_BAmu
XB+JHz*j4_<pv}WkY*GPM=fEei(F?3nfMLY><E?YwW*IzZrE+}4;wSPmZqc9oPDa=KdKMl-8&hGclQ`a>&7G?oy$XeRh|({PQ;P7X0#JLn)xM&
Z)jq#2o?3c)27O(&KKj5h*V`L4te&i=H1;nG=m2dZl&q0*Ixi+s|4lrBVuTp4jH9Adur<aVVE?J-3{n~z)35LPsf-a=v1u^!elx=kT$>6M<euy
lk{2H+Zxq?@qi6%xao?zdAPN^PO-<wO^c>%2)?byNW<{-iP7*R2U)sDN!!Ord)Czfba1qNX!MQSKlMq{t%7u<^geq<pQkC0>kGag1SRs(muIWv
<D&?uu}DyKBI_>kOi+D+ls;gewuj<fPk2BKYCs)F)7MYXnK5f%zuAYzp_bj72}Z%4WNKTcz1c4hQKtCC8z&KwnY3Hzyy+4;RO1=9wv*T~T)92x
kVGetx0MpvFI=>E(4x%Z(YuK=tc373Q(S<43)LepfCmxy|4dVBn)2(+`vjA8vy#D%4`tT+b&TF0Ve$(cxqM$RYFd@<4qVOELvThs?LcyN27M?<
HtBhUf^Evkh;*wK?(Y4Pir_^?Em7HO3>-WywQck&oPCDCiA0MiZ{7|A#VwX5F?*BsXSvDx-ZEX^xrJo+b_`y6>PtTdMya90ORyixw=M*2g^;h0
+7-Z6hM1wiu$h>LWDAzKmPdaNaR!5JqjLM~9F*y(Z(yB9hB-Ogzs2F#`?*=>!pPdel8X?`xfyiFgL?oW8QZ_zR>2<at~c!MY>#U(;kW`MoNp5L
ty4yt+}}-s)@F8t-d$+cR-LvQ*rjehpO?yZ5%&-ZUEYqpv2iy~hU53{jzC|#Fb(|@m}67ya{_n_ol3}X<)(&B_M-zVo8G<m1bVNPPxo5*=9r;R
cVER_bGhUQlS^x<1b(!bxxHF4fMOR4jr4e99YIT11E&g?Op1JUdDXF~@~^c_ay!<zA9ilELigQH_T}(KBe!GMu1vBU*N*mBh~a&YyRGl=Zm!+a
#{NGq@U-?jH@cDov+v%~Doe;Qam8*eZCfC*E6`Ei7iM`#^d1=L%*kQ29oRLtn0CM_y|jD|q7i%t?I3IoVQwVqF6%qgfidg1+3EHjNINu4Q1&(4
sW|waAOB8w`0QuEy~ybtEtKz(UaR>PR#G|y!kaw=!oP_>Z%EgqH8tq+-h6P)4^Br8rQSzZ^=ACAp;q>0r8sQqw_9@!-!<i$Tlafm)LqRi3I)r6
**5SmK`OGrbtx+ecq{>mS&3L((l5Qt0EnQEY;!dYw0{Tp>NbATf2^~PMl9LMia*@16=&hf60XwNz9Vy*`}NG9U&Zv<&Fr~XlgD_wL~yzzYy~9-
&%FqWhdg_onNoWoy>@rw^^N{6Znh||qotD~^%Gz6WG*G5yOizAmFIbiC$I1}19B1v)*Z_W%JcE6=!4QZrsRp=E+-1cm#P`3S4pv#xVo!~c7b7Z
G1G-!RhX59bGqXdMb>5`>%wqd!M=)kK-ZRZRAYZcYM5JN2IeZDjw-Z`Lu!1h6VU8@9E2}?{loijU%mb_(r%UwU&Sz)NwuNtrT<vuOWFcfKg-3_
^6MnFvI?+kRroTq&8xM$ZqmA>{r$X{hL?ezpG)QQbNhOSr<CJk?$qXK&!UBrn_%chnDQF8w}6SZ8R{KduQCs}v}_QPcj}iFjx0(&|N9?aKY#T_
$x8yf(WP9`>GuvL>JTF>R7CTNuTHv902W`E#l&c0ky<0xM~urtEe0aJR7D^0tnpPv0JBYTeU(6OR-a7R(RBpGk6b;b!e%2cAZ0X=LCZb8!qIrm
J0<vR04$h$PY?3P<x5P+pb0NcVq(dAd@#ch2C|IGlADdpv4ZAELGOc7OY90t$H`2U2ET7<W0ifG-M9Kiw|Yo8afOmo>7Df?7MmsALM?3PgY5tS
1!SCqDN19`w6GX5!b?A}(?ht}aCViXF+BN!vG4h;{ZVc1gJ^>a2_|Kfl^@d2QWI?893qp8V5yx0+`3FPg67dI48ed%a=`OA;l56(jmGICOiFml
;1X{sLN^2-Oh-C%6^}}*`?PZcWj7IjqGqP2$J1bXIzDRjWnG0NH_6L|NDKs?I*#}Fa6|O&bTp;L^fl1HJH!A`6zA#`W{4V^f=W7SAVTQBO0tz|
<|3x6P~(YyFtYH`Aj|aM8iVc`i|^U9iQ`xkf)N)SBsR@2XosVF>pfLQYiZ(za+?-ePrig#D5<HWw61KXe0~46CH0V@G~`lgYTc;O?he>cp+8!;
il`otV19udg_=Snu=x!#nD%S)F2#38qazqzsgx)ZH)sbMuqu3)U~Tmy9a11B=&sy1m6r1Gn{}BN56qouNc5u0H8-|+yvdH-3$eMW#D$0WDGn_O
Fm6$hkU5lK%C?ezIcpN-9(2n^I;cwzUkiN(N2eeMLD#@qW3t)}SrI1%*ca(Wnsrmw2y1rMo+GcC3RW8>r-+$TPEs)?$Vs(`b2^>2^ZG<X%|&Yh
!K;E!Sa9^`fKK4Q!uv8}REe2rF@3A7hq;&unkICIpcrXHFYa=Yi>p%^*1&tH(N<6B)V*TWVh}SOHi*o6H06TVq3ny5xvz`r4~-e$Bnrrk)db^3
w`5<Oo+fiM0+E(7H(jl<VJeeo=G)A!bVJ|A&GFdtd*jrOYy38th8l0NOD}S%NI!0wS8j(|Mur(PHe@5#Ii|I)Meq;oQMtLgS}`(qn;g<k+wCAE
Z4dJ}FB@Ec_F#z_%@kq99Mj>*Nq6~Cg7C+&Uth-AxVPCh5NU6)@SU~_F^`sf&GN>B2x#N=4Y>|t1zGn@%5H6FVJKI}@wCg8qWB@`(omRqORWj5
TbEEaw%Uu}YP_W$F?0E2sE5&ph5gXZv~92}54ovnC(=(0(ocS4q<^Xb6PY`<NH?KxzbBN&OIN<SH-?fFC%(+Uj0Z#+9HA<ZD@2odeJN4~FIp1)
LxRa>W;Y7vZ`ZsquvsKv!-gkpV9#UF5J|Qq$BwZNJ|%(mzux27LzPl042fXE5Kmf?zB&uyC-?5s(Ela^h6p;T-KymXm&SElVqjp(42Y<)V}dlr
6K2#;JSpm2eT(=!9?*Zs0m~>|OqQ|S67D*nE~@Xl#j@Z~;(wz?Yv!t4ECa3x-;3)SC<rFiq2~4Fuet?150r1fZGPeEq4<*)j=F53CULiD+Vyl-
%Q9Ll(buiBTQIB>m-XHQO}?Cy0jv+72Xcw;GC?;vP5E3}{D?roqf6<?CW}0alA);l5+BOpMN}rUa0SnL<%PgHtB*o&5;G!(%CrOs|9+@F3kjkN
x#@9QR+4=Z3A!y-mX)RGIG+e``lGbaIE4bg59^DI>w`Qxia95H;9&4@kB)NoF(GuxG949iY*sP@jUN{2f8nE(d_s#Y3$~oa1COCOwLwH*w{*7r
VvQ?2N+%?ucr7=<!B6WDm*3rZh|AhKr=`Pt&>CU2RE2L$Cfsxf9o;PaU0=#9eK2KobcZn{DC6V<HWd>J|I&Ak=K)v%pkNne)FW4A=FYMQ|NKAO
ZeQU
'''
sys.stdout.reconfigure(line_buffering=True)
START = time.time()
folder = tempfile.mkdtemp()
os.makedirs(os.path.join(folder, "fast_before"))
for name, text in json.loads(zlib.decompress(base64.b85decode("".join(BLOB.split())))).items():
    with open(os.path.join(folder, "fast_before", name), "w", encoding="utf-8") as file:
        file.write(text)
sys.path.insert(0, folder)

import torch
from monai.networks.nets.basic_unet import BasicUNet
from torch import nn
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

import fast_before
import fast_before.batch_norm as old_norm
from gpu_times import replayed
from ringfence.weak.networks.fast import batch_norm, convolutions, faster, last, maps, swap, unet

NETWORKS = {"PROMISE12": (32, 32, 64, 128, 256, 32), "synthetic": (16, 32, 64, 128, 256, 16)}


def left():
    return OPTIONS.seconds - (time.time() - START)


def made(features, fuse, channels=1, outputs=2):
    torch.manual_seed(0)
    net = BasicUNet(2, channels, outputs, features, act="relu", norm="batch", upsample="nontrainable")
    net.cuda().to(memory_format=torch.channels_last)
    if fuse is not None:
        fuse(net)
    return net


def rel(a, b):
    a, b = a.detach(), b.detach()
    return float((a.double() - b.double()).norm() / b.double().norm().clamp(min=1e-12))


# ------------------------------------------------------------------ checks


def check(features, batch, channels, outputs, size, dtype):
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    plain = made(features, None, channels, outputs)
    net, exact = copy.deepcopy(plain), copy.deepcopy(plain).double()
    faster(net)
    images = torch.randn(batch, channels, *size, device="cuda").to(memory_format=torch.channels_last)
    aim = torch.randn(batch, outputs, *size, device="cuda")
    worst = {}
    for _ in range(2):
        for one, x in ((net, images), (plain, images), (exact, images.double())):
            one.zero_grad()
            with torch.autocast("cuda", dtype=dtype, enabled=dtype != torch.float32 and one is not exact, cache_enabled=False):
                one.logits = one(x)
            (one.logits.to(torch.float64 if one is exact else torch.float32) - aim).square().mean().backward()
        worst["logits"] = (rel(net.logits, exact.logits), rel(plain.logits, exact.logits))
        for name, p in net.named_parameters():
            if p.requires_grad:
                t = exact.get_parameter(name).grad
                worst[name] = (rel(p.grad, t), rel(plain.get_parameter(name).grad, t))
    for name, b in plain.state_dict().items():
        if "running" in name or "tracked" in name:
            t = exact.state_dict()[name]
            worst[name] = (rel(net.state_dict()[name], t), rel(b, t))
    floor, factor = (1e-4, 2.0) if dtype == torch.float32 else (3e-2, 4.0)  # a few pixels decide on deep maps
    bad = {k: v for k, v in worst.items() if not v[0] <= max(factor * v[1], floor)}
    trained = [name for name, p in net.named_parameters() if p.requires_grad]
    flat = [torch.cat([one.get_parameter(name).grad.double().flatten() for name in trained]) for one in (net, plain, exact)]
    whole = rel(flat[0], flat[2]), rel(flat[1], flat[2])
    if not whole[0] <= max(1.3 * whole[1], floor):
        bad["all gradients together"] = whole
    assert all(not m.tickets.any() for m in net.modules() if isinstance(m, batch_norm.NormWithReLU)), "tickets left"
    net.eval(), plain.eval()
    with torch.no_grad():
        evaluated = rel(net(images), plain(images))
    top = max(worst.items(), key=lambda one: one[1][0])
    print(f"check {str(dtype)[6:]:9} batch {batch} {channels}->{outputs} {size} {features}: "
          f"{'OK ' if not bad and evaluated < 1e-3 else 'BAD'} gradients together: ours {whole[0]:.1e} plain {whole[1]:.1e}; worst {top[0]} ours {top[1][0]:.1e} plain {top[1][1]:.1e}; eval {evaluated:.1e}", flush=True)
    for name, v in list(bad.items())[:6]:
        print(f"    BAD {name}: ours {v[0]:.2e}, plain {v[1]:.2e}")


def check_parts():
    for dtype, tol in ((torch.float32, 1e-5), (torch.bfloat16, 1e-2)):
        conv = nn.Conv2d(32, 2, 1).cuda()
        x = torch.randn(3, 32, 97, 65, device="cuda", dtype=dtype).to(memory_format=torch.channels_last).requires_grad_()
        y = last.projected(x, conv.weight, conv.bias)
        g = torch.randn_like(y)
        y.backward(g)
        exact = copy.deepcopy(conv).to(dtype).double()
        exact.zero_grad()
        z = x.detach().double().requires_grad_()
        w = exact(z)
        w.backward(g.double())
        r = [rel(y, w), rel(x.grad, z.grad), rel(conv.weight.grad, exact.weight.grad), rel(conv.bias.grad, exact.bias.grad)]
        print("part last", dtype, "OK" if max(r) < tol else "BAD", ["%.1e" % one for one in r])
        x = torch.randn(2, 32, 46, 62, device="cuda", dtype=dtype).to(memory_format=torch.channels_last).requires_grad_()
        kept = []
        y, z = maps.Halving()(x, kept), x.detach().double().requires_grad_()
        g = torch.randn_like(y)
        k = torch.randn(2, 64, 46, 62, device="cuda", dtype=dtype).to(memory_format=torch.channels_last)[:, :32]
        torch.autograd.backward([y, kept[0]], [g, k])
        torch.autograd.backward([F.max_pool2d(z, 2), z * 1], [g.double(), k.double()])
        print("part halving", dtype, "OK" if rel(x.grad, z.grad) < tol else "BAD", "%.1e" % rel(x.grad, z.grad), flush=True)


def check_replays():
    """Steps from a CUDA graph move the weights as eager steps do; a lost or doubled ticket would show."""
    found = []
    for graph in (False, True):
        net = made((16, 16, 16, 16, 16, 16), faster)
        images = torch.randn(4, 1, 64, 64, device="cuda", generator=torch.Generator("cuda").manual_seed(1)).to(memory_format=torch.channels_last)
        opt = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=1e-3)

        def step():
            opt.zero_grad(set_to_none=True)
            with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False):
                logits = net(images)
            logits.float().square().mean().backward()
            opt.step()

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        if graph:
            recorded = torch.cuda.CUDAGraph()
            with torch.cuda.graph(recorded):
                step()
            for _ in range(20):
                recorded.replay()
        else:
            for _ in range(20):
                step()
        torch.cuda.synchronize()
        found.append({k: v.clone() for k, v in net.state_dict().items()})
    apart = max(rel(found[1][k], v) for k, v in found[0].items() if "tracked" not in k)
    counted = {int(v) for f in found for k, v in f.items() if "tracked" in k}
    print("replays", "OK" if apart < 1e-2 and counted == {23} else "BAD", f"apart {apart:.1e}, batches counted {counted}", flush=True)


# ------------------------------------------------------------------ variants


@contextlib.contextmanager
def patched(*changes):
    before = [(where, name, getattr(where, name)) for where, name, _ in changes]
    try:
        for where, name, value in changes:
            setattr(where, name, value)
        yield
    finally:
        for where, name, value in before:
            setattr(where, name, value)


def kept_plainly(self, x, kept=None):
    """The gradient of the skip added by autograd: the map itself is handed on."""
    result = HALVING(self, x, None)
    if kept is not None:
        kept.append(x)
    return result


HALVING = maps.Halving.forward
LOADS = batch_norm.LOADS


def loads(moments, slopes):
    return {k: dict(zip(("UNROLL", "STAGES"), v)) for k, v in (("moments", moments), ("slopes", slopes))}


VARIANTS = {
    "before (e6ac78c)": "old",
    "all": [],
    "all but last conv": [(swap, "narrow", lambda module: None)],
    "all but skip gradients": [(maps.Halving, "forward", kept_plainly)],
    "all but rounding together": [(unet, "rounded_together", lambda network: contextlib.nullcontext())],
    "all but sums (old norm)": [(swap, "NormWithReLU", old_norm.NormWithReLU)],
}
NORMS = {  # of the norm alone: forward, and forward with backward
    "as it is": [],
    "slopes 4 unrolled": [(batch_norm, "LOADS", loads((8, 1), (4, 1)))],
    "slopes 2 unrolled": [(batch_norm, "LOADS", loads((8, 1), (2, 1)))],
    "slopes 6 stages": [(batch_norm, "LOADS", loads((8, 1), (1, 6)))],
    "moments 4 unrolled": [(batch_norm, "LOADS", loads((4, 1), (1, 4)))],
    "moments 4 stages": [(batch_norm, "LOADS", loads((1, 4), (1, 4)))],
    "PARTS 128": [(batch_norm, "PARTS", 128)],
    "PARTS 512": [(batch_norm, "PARTS", 512)],
    "STEPS 1": [(batch_norm, "STEPS", 1)],
    "STEPS 2": [(batch_norm, "STEPS", 2)],
    "TILE 4096": [(batch_norm, "TILE", 4096)],
    "TILE 4096, 16 warps": [(batch_norm, "TILE", 4096), (batch_norm, "WARPS", 16)],
    "4 warps, PARTS 512": [(batch_norm, "WARPS", 4), (batch_norm, "PARTS", 512)],
    "moments 8 stages": [(batch_norm, "LOADS", loads((1, 8), (1, 4)))],
    "slopes 3 stages": [(batch_norm, "LOADS", loads((8, 1), (1, 3)))],
}
SHAPES = [(16, 32, 256, 256), (8, 16, 256, 256), (16, 32, 128, 128), (16, 64, 64, 64), (16, 128, 32, 32), (16, 256, 16, 16)]
LASTS = {
    "as it is": [],
    "TILE 2048": [(last, "TILE", 2048)],
    "TILE 8192": [(last, "TILE", 8192)],
    "PARTS 264": [(last, "PARTS", 264)],
    "PARTS 1056": [(last, "PARTS", 1056)],
}
MAPS = {"as it is": [], "32 pixels": [(maps, "PIXELS", 32)], "128 pixels": [(maps, "PIXELS", 128)]}


def rows_like(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16).to(memory_format=torch.channels_last).requires_grad_()


def norm_times(changes, shape, kind=batch_norm.NormWithReLU):
    with patched(*changes):
        norm, x = kind(nn.BatchNorm2d(shape[1]).cuda(), None), rows_like(*shape)
        dy = rows_like(*shape).detach()

        def forward():
            with torch.no_grad():
                norm(x)

        both = replayed(lambda: torch.autograd.grad(norm(x), [x, norm.weight], dy), 20)
        return [1e3 * replayed(forward, 20), 1e3 * both]


def last_times(changes):
    with patched(*changes):
        found = []
        for batch, channels in ((16, 32), (8, 16)):
            conv, x = nn.Conv2d(channels, 2, 1).cuda(), rows_like(batch, channels, 256, 256)
            dy = rows_like(batch, 2, 256, 256).detach()

            def forward():
                with torch.no_grad():
                    last.projected(x, conv.weight, conv.bias)

            back = lambda: torch.autograd.grad(last.projected(x, conv.weight, conv.bias), [x, conv.weight, conv.bias], dy)
            found += [1e3 * replayed(forward, 20), 1e3 * replayed(back, 20)]
        return found


def map_times(changes):
    with patched(*changes):
        x, small = rows_like(16, 32, 256, 256), rows_like(16, 32, 128, 128)
        wide, dy = rows_like(16, 64, 256, 256).detach(), rows_like(16, 32, 128, 128).detach()

        def halving():
            kept = []
            y = maps.Halving()(x, kept)
            torch.autograd.grad([y, kept[0]], [x], [dy, wide[:, :32]])

        join = lambda: torch.autograd.grad(maps.join_doubled(x, small), [x, small], wide)
        return [1e3 * replayed(halving, 20), 1e3 * replayed(join, 20)]


def micro():
    print("\nµs, last convolution: (16, 32) forward, with backward; (8, 16) forward, with backward")
    for name, changes in LASTS.items():
        found = attempt(name, last_times, changes)
        if found:
            record["micro"][f"last {name}"] = found
            print(f"{name:28}" + "".join(f"{one:9.1f}" for one in found), flush=True)
    print("µs, halving with kept map, and join, each with backward, at (16, 32, 256, 256)")
    for name, changes in MAPS.items():
        found = attempt(name, map_times, changes)
        if found:
            record["micro"][f"maps {name}"] = found
            print(f"{name:28}" + "".join(f"{one:9.1f}" for one in found), flush=True)
    print("µs, norm: forward, with backward; at " + ", ".join(str(one) for one in SHAPES))
    for name, changes in {"before (e6ac78c)": "old", **NORMS}.items():
        found = []
        for shape in SHAPES:
            if left() < 20:
                break
            args = ([], shape, old_norm.NormWithReLU) if changes == "old" else (changes, shape)
            found += attempt(name, norm_times, *args) or [float("nan")] * 2
        record["micro"][f"norm {name}"] = found
        print(f"{name:28}" + "".join(f"{one:9.1f}" for one in found), flush=True)


def stepping(features, batch, fuse):
    net = made(features, fuse)
    images = torch.randn(batch, 1, 256, 256, device="cuda").to(memory_format=torch.channels_last)
    opt = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], fused=True, capturable=True)

    def step():
        opt.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False):
            logits = net(images)
        logits.float().square().mean().backward()
        opt.step()

    return step


def timed(features, batch, changes, kernels=0):
    fuse = fast_before.faster if changes == "old" else faster
    with patched(*([] if changes == "old" else changes)):
        step = stepping(features, batch, fuse)
        took = replayed(step, 20)
        top, launches = [], 0
        if kernels:
            with profile(activities=[ProfilerActivity.CUDA]) as seen:
                step()
                torch.cuda.synchronize()
            rows = sorted(seen.key_averages(), key=lambda one: -one.self_device_time_total)
            top = [(one.key, one.count, one.self_device_time_total) for one in rows if one.self_device_time_total > 0]
            launches = sum(one.count for one in rows)
    return took, top[:kernels], launches


def attempt(what, function, *args, **kwargs):
    try:
        return function(*args, **kwargs)
    except Exception as error:
        print(f"{what}: FAILED {type(error).__name__}: {str(error).strip().splitlines()[-1][:200] if str(error).strip() else ''}", flush=True)
        if OPTIONS.traceback:
            traceback.print_exc()
    finally:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    return None


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--checks-only", action="store_true")
    parser.add_argument("--no-checks", action="store_true")
    parser.add_argument("--traceback", action="store_true")
    parser.add_argument("--seconds", type=float, default=95.0)
    parser.add_argument("--out", default=None)
    OPTIONS = parser.parse_args()
    record = {"torch": torch.__version__, "times": {}, "kernels": {}, "micro": {}}
    print(torch.__version__, torch.cuda.get_device_name())
    if not OPTIONS.no_checks:
        attempt("parts", check_parts)
        attempt("replays", check_replays)
        for features, batch, channels, outputs, size in (
            ((32, 32, 64, 128, 256, 32), 2, 1, 2, (128, 160)),
            ((16, 16, 32, 40, 32, 16), 4, 3, 5, (68, 98)),
            ((8, 8, 16, 16, 16, 8), 3, 2, 3, (64, 64)),
        ):
            for dtype in (torch.float32, torch.bfloat16):
                attempt("check", check, features, batch, channels, outputs, size, dtype)
        print(f"checks took {time.time() - START:.0f} s", flush=True)
    torch.backends.cudnn.allow_tf32 = True
    if not OPTIONS.checks_only:
        for name, features in NETWORKS.items():
            for variant in ("before (e6ac78c)", "all"):
                found = attempt(variant, timed, features, {"PROMISE12": 16, "synthetic": 8}[name], VARIANTS[variant], kernels=34)
                if found is None:
                    continue
                took, top, launches = found
                record["kernels"][f"{name}, {variant}"] = top
                print(f"\n{name}, {variant}: {took:.3f} ms, {launches} launches; µs by kernel (count)")
                for key, count, total in top:
                    print(f"  {total:7.1f} {count:4} {key[:100]}")
        print()
        main = [("PROMISE12", 16), ("synthetic", 8)]
        cases = main + [(name, batch) for batch in (8, 16, 32) for name in NETWORKS if (name, batch) not in main]
        for number, (name, batch) in enumerate(cases):
            if number == len(main):
                micro()
            for variant, changes in VARIANTS.items():
                if left() < 3:
                    print(f"no time for {name} {batch} {variant}")
                    continue
                found = attempt(f"{name} {batch} {variant}", timed, NETWORKS[name], batch, changes)
                if found is not None:
                    record["times"].setdefault(variant, {})[f"{name} {batch}"] = found[0]
        print()
        columns = [f"{name} {batch}" for name, batch in cases]
        print(f"{'ms a step':28}" + "".join(f"{one:>14}" for one in columns))
        for variant, times in record["times"].items():
            print(f"{variant:28}" + "".join(f"{times[one]:14.3f}" if one in times else f"{'-':>14}" for one in columns))
    if OPTIONS.out:
        with open(OPTIONS.out, "w", encoding="utf-8") as file:
            json.dump(record, file, indent=1)
    print(f"{time.time() - START:.0f} s")
